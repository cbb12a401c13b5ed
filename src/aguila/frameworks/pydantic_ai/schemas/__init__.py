"""Reduce the JSON Schemas of the front end's tools to keywords that every vendor accepts.

Front ends and generators write any JSON Schema. Vendors accept a part of it, and refuse the whole request for the rest.
The reduced schema accepts everything that the tool's own schema accepts, and may accept more. A keyword is dropped if
that widens the schema. If it would narrow the schema, the keywords that depend on it are dropped too:

=========================================  ==========================================================================
a combination at the root                  an object with the properties of all branches; a property that some branch
                                           does not have accepts anything
``not``, ``oneOf`` with reduced parts      dropped; becomes ``anyOf``
``contains`` with ``minContains``          dropped
external references, and too deep parts    accept anything
=========================================  ==========================================================================

References can make a short schema expand to any size. ``SchemaBudget`` limits the work for one run.
"""
