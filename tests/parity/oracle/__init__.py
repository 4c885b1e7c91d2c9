"""One module per fixture; `fixture()` computes its content."""
