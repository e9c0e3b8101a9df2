"""What everything else rests on: errors, settings, times, hidden columns, the stable hash."""
