import {
  isToolCallContent,
  useAgentState,
  useChat,
  type AIMessageContent,
  type ChatMessagesData,
  type ChatRequestParams,
  type ChatServiceConfig,
  type ToolCall,
} from "@tdesign-react/chat";
import { useEffect, useMemo, useRef, useState } from "react";
import { historyOf } from "./history";
import type { Answer } from "./Questions";
import { cancelRuns, SERVER, type Interrupt, type StoredThread } from "./server";
import { PAGE_TOOLS } from "./tools";

const TOOL_DEFINITIONS = PAGE_TOOLS.map(({ run, ...definition }) => definition);

/** One thread: its messages and state, and what a user can do with it. */
export function useThread(threadId: string, stored: StoredThread) {
  const history = useMemo(() => historyOf(stored), [stored]);
  const runningId = stored.runs.find(({ status }) => status === "running")?.runId;
  const joined = useRef<string>(undefined);
  const [error, setError] = useState<string>();
  const [interrupts, setInterrupts] = useState<Interrupt[]>(stored.interrupts);
  const [answers, setAnswers] = useState<Record<string, string>>({}); // of the page and its user, by the id of the call
  const sent = useRef(new Set<string>());
  const [lateResults, setLateResults] = useState<Record<string, string>>({});
  const { stateMap, setStateMap } = useAgentState({ initialState: stored.state });
  const state = useRef(stateMap);
  state.current = stateMap;

  const config = useMemo<ChatServiceConfig>(
    () => ({
      protocol: "agui",
      stream: true,
      /** TDesign Chat reads this before each request: a run that is still on has an address of its own. */
      get endpoint() {
        const run = joined.current;
        return run === undefined ? `${SERVER}/` : `${SERVER}/threads/${encodeURIComponent(threadId)}/runs/${run}/events`;
      },
      onRequest: (params) =>
        joined.current === undefined ? { body: inputOf(threadId, params, state.current) } : { method: "GET" },
      onMessage({ data: event }, _message, parsed) {
        // TDesign Chat drops the result of a call of an earlier run, such as one that was approved.
        if (event.type === "TOOL_CALL_RESULT") {
          setLateResults((before) => ({ ...before, [event.toolCallId]: event.content }));
        }
        return contentOf(event) ?? parsed ?? null;
      },
      onComplete: (_isAborted, _params, event) => setInterrupts(event?.outcome?.interrupts ?? []),
      onError: (failure) => setError("message" in failure ? failure.message : `HTTP ${failure.status}`),
      /** Closing the connection would not cancel the run. Do not wait: the answer has to be open when it is stopped. */
      onAbort: async () => void cancelRuns(threadId),
    }),
    [threadId],
  );
  const { chatEngine, messages, status } = useChat({ defaultMessages: history, chatServiceConfig: config });
  const isRunning = status === "pending" || status === "streaming";

  useEffect(() => {
    if (runningId === undefined) return;
    joined.current = runningId;
    void chatEngine.sendAIMessage({}).finally(() => (joined.current = undefined));
  }, [chatEngine, runningId]);

  // Answer the calls of tools that answer by themselves. Run the agent again when no call waits for the user.
  useEffect(() => {
    if (isRunning || interrupts.length > 0) return;
    const open = openCalls(messages).filter(({ toolCallId }) => answers[toolCallId] === undefined);
    const automatic = open.flatMap(({ toolCallId, toolCallName, args }) => {
      const tool = PAGE_TOOLS.find(({ name }) => name === toolCallName);
      return tool?.run ? [[toolCallId, tool.run(JSON.parse(args ?? "{}"))]] : [];
    });
    const unsent = Object.keys(answers).filter((id) => !sent.current.has(id));
    if (automatic.length > 0) {
      setAnswers((before) => ({ ...before, ...Object.fromEntries(automatic) }));
    } else if (open.length === 0 && unsent.length > 0) {
      for (const id of unsent) sent.current.add(id);
      run({ toolResults: unsent.map((toolCallId) => ({ toolCallId, content: answers[toolCallId] })) });
    }
  });

  /** Run the agent with something else than a message of the user. */
  function run(params: ChatRequestParams) {
    forgetErrors();
    void chatEngine.sendAIMessage({ params });
  }

  /** TDesign Chat marks every answer as failed while an earlier message has the status `error`. */
  function forgetErrors() {
    setError(undefined);
    if (chatEngine.messages.some((message) => message.status === "error")) {
      chatEngine.setMessages(chatEngine.messages.map((m) => (m.status === "error" ? { ...m, status: "complete" } : m)));
    }
  }

  return {
    messages,
    interrupts: isRunning ? [] : interrupts,
    calls: callsOf(messages),
    /** The result of a call as TDesign Chat reads it: JSON, or text that only a handler receives. */
    resultOf({ toolCallId, result }: ToolCall): string | undefined {
      const answer = answers[toolCallId];
      return answer === undefined ? (result ?? lateResults[toolCallId]) : JSON.stringify(answer);
    },
    isRunning,
    error,
    state: stateMap,
    setState: setStateMap,
    send(prompt: string, attachments: ChatRequestParams["attachments"]) {
      forgetErrors();
      void chatEngine.sendUserMessage({ prompt, attachments });
    },
    /** Answer a call of a tool that the user answers. */
    answerCall: (id: string, content: string) => setAnswers((before) => ({ ...before, [id]: content })),
    resume(answer: Answer) {
      setInterrupts([]);
      run({ resume: [answer] });
    },
    stop: () => void chatEngine.abortChat(),
  };
}

/** The input of a run. The server has the messages before, so only the new one is sent. */
function inputOf(threadId: string, params: ChatRequestParams, state: unknown): string {
  const id = crypto.randomUUID();
  const results = (params.toolResults ?? []).map((result: object) => ({ id: crypto.randomUUID(), role: "tool", ...result }));
  const images = (params.attachments ?? []).map(({ url }) => ({ type: "image", source: sourceOf(url!) }));
  const content = images.length > 0 ? [{ type: "text", text: params.prompt }, ...images] : params.prompt;
  const messages = params.prompt === undefined ? results : [{ id, role: "user", content }];
  const rest = { tools: TOOL_DEFINITIONS, state, context: [], forwardedProps: {}, resume: params.resume };
  return JSON.stringify({ threadId, runId: crypto.randomUUID(), messages, ...rest });
}

function sourceOf(dataUrl: string) {
  const [, mimeType, value] = /^data:(.*?);base64,(.*)$/s.exec(dataUrl)!;
  return { type: "data", value, mimeType };
}

/** What TDesign Chat does not draw by itself: it reads THINKING_*, which REASONING_* has replaced in the protocol. */
function contentOf(event: { type: string; delta?: string }): AIMessageContent | null {
  switch (event.type) {
    case "REASONING_MESSAGE_START":
      return { type: "thinking", data: { title: "Thinking…" }, status: "streaming", strategy: "append" };
    case "REASONING_MESSAGE_CONTENT":
      return { type: "thinking", data: { text: event.delta }, status: "streaming", strategy: "merge" };
    case "REASONING_MESSAGE_END":
      return { type: "thinking", data: { title: "Thought" }, status: "complete", strategy: "merge" };
    case "RUN_ERROR": // it would replace what the run has written; the page shows the error below
      return { type: "markdown", data: "", status: "error", strategy: "merge" };
    default:
      return null;
  }
}

function callsOf(messages: ChatMessagesData[]): ToolCall[] {
  const contents = messages.flatMap((message) => (message.role === "assistant" ? (message.content ?? []) : []));
  return contents.filter(isToolCallContent).map(({ data }) => data);
}

/** Calls of tools of the page that have no result yet. */
function openCalls(messages: ChatMessagesData[]): ToolCall[] {
  return callsOf(messages).filter((call) => !call.result && PAGE_TOOLS.some(({ name }) => name === call.toolCallName));
}
