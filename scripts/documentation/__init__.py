"""The site of the documentation: what ``scripts/build_documentation.py`` consists of."""
