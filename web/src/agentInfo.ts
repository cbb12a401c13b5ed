/** What the agent declares about itself: its name, its description, and messages to start with. */

import { computed, effect, signal } from "@preact/signals";
import { options } from "./options";
import { ApiError, getCapabilities, token } from "./protocol/api";
import type { Json } from "./protocol/types";

export type AgentInfo = { name: string | null; description: string | null; suggestions: readonly string[] };

const declared = signal<Json>(null);

// With another token everything is asked anew.
effect(() => {
  void token.value;
  getCapabilities().then(
    (found) => (declared.value = found),
    (error: unknown) => {
      if (!(error instanceof ApiError)) throw error; // without capabilities there is nothing to show
    },
  );
});

export const agentInfo = computed<AgentInfo>(() => {
  const identity = member(declared.value, "identity");
  const suggestions = member(member(declared.value, "custom"), "suggestions");
  return {
    name: text(member(identity, "name")),
    description: text(member(identity, "description")),
    suggestions: options.suggestions ?? (Array.isArray(suggestions) ? suggestions.filter((one) => typeof one === "string").slice(0, 12) : []),
  };
});

function member(value: Json | undefined, name: string): Json | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value[name] : undefined;
}

function text(value: Json | undefined): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}
