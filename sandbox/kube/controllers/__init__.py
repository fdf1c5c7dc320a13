"""The machine controllers of the three flavours."""
