"""What a user writes: streams, windows, expressions and the values behind them."""
