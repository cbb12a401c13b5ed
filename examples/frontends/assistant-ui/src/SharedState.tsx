import { useAgUiSetState, useAgUiState } from "@assistant-ui/react-ag-ui";

interface RecipeState {
  recipe?: { title: string; ingredients: string[] };
}

/** The state that the agent and the page share. What is typed here reaches the agent with the next message. */
export function SharedState() {
  const state = useAgUiState<RecipeState>();
  const setState = useAgUiSetState<RecipeState>();
  const recipe = state?.recipe;
  return (
    <aside aria-label="State">
      <h2>Shared state</h2>
      <label>
        Title{" "}
        <input
          aria-label="Recipe title"
          value={recipe?.title ?? ""}
          onChange={(event) => setState({ ...state, recipe: { ingredients: [], ...recipe, title: event.target.value } })}
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
