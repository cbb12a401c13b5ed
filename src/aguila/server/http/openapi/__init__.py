"""The HTTP surface as an OpenAPI 3.1 document, made of the route table and the wire types."""
