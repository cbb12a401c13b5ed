"""Layer: codec. Written by scripts/generate_proto.py from agui.proto; never edited by hand."""
