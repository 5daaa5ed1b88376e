"""Phase 2: asynchronous policy-gradient RL (report, section 4).

May import `sampler`, `train`, `weights`, `data` and everything below them. `objective` and
`rewards` are the formulae; `trajectory`, `store`, `scheduler` and `batching` the bookkeeping;
`actor` and `learner` the two threads.
"""
