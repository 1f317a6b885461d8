"""The doctor: looks at a database and its surroundings, and says what to do."""
