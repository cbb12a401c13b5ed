import { randomUUID, type InputContent, type Interrupt, type Message, type ResumeEntry, type ToolCall } from "@ag-ui/client";
import { useCallback, useEffect, useReducer, useState } from "react";
import { cancelRuns, SERVER, ThreadAgent } from "./server";
import { TOOLS } from "./tools";

const TOOL_DEFINITIONS = TOOLS.map(({ run, ...definition }) => definition);

/** One thread: its messages and state, and what a user can do with it. */
export function useThread(threadId: string, onRunEnd: () => void) {
  const [agent] = useState(() => new ThreadAgent({ url: `${SERVER}/`, threadId }));
  const [error, setError] = useState<string>();
  const [, render] = useReducer((count: number) => count + 1, 0);

  useEffect(() => {
    const subscription = agent.subscribe({
      onEvent: () => render(),
      onMessagesChanged: () => render(),
      onStateChanged: () => render(),
      onRunErrorEvent: ({ event }) => setError(event.message),
      onRunFailed: ({ error }) => setError(error.message),
      onRunFinalized: () => render(),
    });
    return () => subscription.unsubscribe();
  }, [agent]);

  /** Run the agent, and again as long as the page can answer all the calls that it made. */
  const run = useCallback(
    async (resume?: ResumeEntry[], join = false) => {
      setError(undefined);
      try {
        if (join) await agent.connectAgent({ tools: TOOL_DEFINITIONS });
        else await agent.runAgent({ tools: TOOL_DEFINITIONS, resume });
        while (answerCalls(agent)) await agent.runAgent({ tools: TOOL_DEFINITIONS });
      } catch (failure) {
        setError(String(failure));
      }
      render();
      onRunEnd();
    },
    [agent, onRunEnd],
  );

  useEffect(() => {
    void run(undefined, true);
    return () => void agent.detachActiveRun();
  }, [agent, run]);

  return {
    messages: agent.messages,
    state: agent.state,
    interrupts: agent.isRunning ? [] : agent.pendingInterrupts,
    openCalls: agent.isRunning ? [] : openCalls(agent.messages, agent.pendingInterrupts),
    isRunning: agent.isRunning,
    error,
    send(content: string | InputContent[]) {
      agent.addMessage({ id: randomUUID(), role: "user", content });
      void run();
    },
    /** Answer a call of a tool that the user answers. */
    answerCall(toolCallId: string, content: string) {
      agent.addMessage({ id: randomUUID(), role: "tool", toolCallId, content });
      render();
      if (openCalls(agent.messages, []).length === 0) void run();
    },
    resume: (answers: ResumeEntry[]) => void run(answers),
    setState(state: unknown) {
      agent.setState(state);
      render();
    },
    stop: () => void cancelRuns(threadId).catch((failure) => setError(String(failure))),
  };
}

/** Tool calls that nobody has answered yet, and that no interrupt asks about. */
function openCalls(messages: Message[], interrupts: Interrupt[]): ToolCall[] {
  const answered = new Set(messages.map((message) => (message.role === "tool" ? message.toolCallId : undefined)));
  const asked = new Set(interrupts.map((interrupt) => interrupt.toolCallId));
  const calls = messages.flatMap((message) => (message.role === "assistant" ? (message.toolCalls ?? []) : []));
  return calls.filter((call) => !answered.has(call.id) && !asked.has(call.id));
}

/** Answer the calls of tools that answer by themselves. Return whether no call is left for the user. */
function answerCalls(agent: ThreadAgent): boolean {
  const open = openCalls(agent.messages, agent.pendingInterrupts);
  for (const call of open) {
    const tool = TOOLS.find(({ name }) => name === call.function.name);
    if (!tool?.run) continue;
    const content = tool.run(JSON.parse(call.function.arguments));
    agent.addMessage({ id: randomUUID(), role: "tool", toolCallId: call.id, content });
  }
  return open.length > 0 && openCalls(agent.messages, agent.pendingInterrupts).length === 0;
}
