"""Transactional producers: who they are, what their open transaction has written to, and how it ends."""
