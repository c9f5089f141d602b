"""Access control: tokens, reviews, and the threads that send the reviews."""
