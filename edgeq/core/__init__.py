"""Pure decisions: values in, values out; no clock, chance or I/O."""
