"""From source files and transcripts to packed batches of token ids.

`corpora` and `documents` make text, `tokenizer` and `chat` make ids, `seqio_tasks` names what is
trained on, `store` keeps the ids and `pipeline` reads them for training. Only `seqio_tasks` needs
TensorFlow; importing anything else here never loads it.
"""
