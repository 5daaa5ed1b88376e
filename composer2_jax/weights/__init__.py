"""Moving weights from the trainer to samplers. May import `core`."""
