"""The agent's side of the harness: messages, the call format, prompts and transcripts.

The same code frames a conversation in training, evaluation and serving. Anyone may import this
package; it imports the standard library only.
"""
