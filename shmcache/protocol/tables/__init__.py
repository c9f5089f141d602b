"""Tables as the API server prints them."""
