"""How a view's stored rows are brought up to date: which keys a change can touch, and what to read again for them."""
