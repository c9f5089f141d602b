"""The processes and objects that questions are asked about."""
