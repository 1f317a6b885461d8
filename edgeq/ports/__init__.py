"""What the queue needs from the world, as protocols and values: a store, a clock, chance."""
