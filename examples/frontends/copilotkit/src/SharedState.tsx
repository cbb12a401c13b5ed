import { useAgent } from "@copilotkit/react-core/v2";

export interface RecipeState {
  recipe?: { title: string; ingredients: string[] };
}

/** The state that the agent and the page share. What is typed here reaches the agent with the next message. */
export function SharedState() {
  const { agent } = useAgent();
  return <RecipePanel state={agent.state} onChange={(state) => agent.setState(state)} />;
}

export function RecipePanel({ state, onChange }: { state?: RecipeState; onChange: (state: RecipeState) => void }) {
  const recipe = state?.recipe;
  return (
    <aside aria-label="State">
      <h2>Shared state</h2>
      <label>
        Title{" "}
        <input
          aria-label="Recipe title"
          value={recipe?.title ?? ""}
          onChange={(event) => onChange({ ...state, recipe: { ingredients: [], ...recipe, title: event.target.value } })}
        />
      </label>
      <ul>
        {recipe?.ingredients?.map((ingredient) => (
          <li key={ingredient}>{ingredient}</li>
        ))}
      </ul>
    </aside>
  );
}
