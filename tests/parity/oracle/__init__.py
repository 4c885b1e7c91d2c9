"""One module for each fixture; `fixture()` computes its content."""
