"""``aguila.providers`` is gone: models are used through pydantic-ai. Importing this says what to write instead."""

_HELP = """aguila.providers was replaced by pydantic-ai, with models of every vendor.
Install 'aguila[models]', and write

    from pydantic_ai import Agent
    from aguila import App
    from aguila.frameworks import pydantic_ai

    agent = Agent("openai:gpt-5.4-mini", instructions="Be brief.", tools=[weather])
    app = App(pydantic_ai.agent(agent))

Other vendors: Agent("anthropic:..."), Agent("google:..."). See "From aguila.providers" in docs/models.md."""

raise ImportError(_HELP)
