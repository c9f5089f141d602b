"""The output of commands: forms, columns, terminals."""
