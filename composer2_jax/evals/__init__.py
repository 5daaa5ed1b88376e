"""Evaluation: what a checkpoint can do, with intervals, as numbers and as a page to read.

Carries out section 11 of the report (several passes a task, completion tokens, latency) and its
figure 5 (average reward and best-of-K). Verbs may import it; it may import sampler, train and what
stands to their right. `statistics`, `records`, `charts`, `viewer` and `report` import no jax, so a
finished run can be read on a machine that has none.
"""
