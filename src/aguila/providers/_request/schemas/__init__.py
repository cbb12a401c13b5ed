"""Reduce the JSON Schemas of tools to the keywords that each provider accepts.

Front ends and generators write any JSON Schema. Providers accept a part of it, and refuse the whole request for the
rest. The reduced schema accepts everything that the tool's own schema accepts, and may accept more: a tool checks its
arguments itself. A keyword that a provider does not accept is dropped if that widens the schema. If it would narrow the
schema, the keywords that depend on it are dropped too:

=========================================  ==========================================================================
a combination at the root                  an object with the properties of all branches; a property that some branch
                                           does not have accepts anything
properties with refused names,             ``additionalProperties`` beside them is dropped
``patternProperties`` (Gemini)
``not``, ``oneOf`` with reduced parts      dropped; becomes ``anyOf``
``contains`` with ``minContains``          dropped
external references, and too deep parts    accept anything
=========================================  ==========================================================================

References can make a short schema expand to any size. ``SchemaBudget`` limits the work for one request.
"""
