"""Faults as a programme: campaigns that break Penstock in every way they know, and count."""
