"""What placement rests on, read from rows: offers, prices of moves, safety of spot, reasons."""
