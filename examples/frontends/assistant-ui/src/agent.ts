import { HttpAgent, runHttpRequest, transformHttpEventStream, type Message, type RunAgentInput } from "@ag-ui/client";
import { ExportedMessageRepository, type ChatModelRunResult, type ThreadHistoryAdapter } from "@assistant-ui/react";
import { fromAgUiMessages } from "@assistant-ui/react-ag-ui";
import { cancelRuns, getThread, SERVER } from "./server";

/** An HttpAgent that can join a thread, and whose stop cancels the run. */
export class ThreadAgent extends HttpAgent {
  protected connect(input: RunAgentInput) {
    return transformHttpEventStream(runHttpRequest(() => fetch(`${SERVER}/connect`, this.requestInit(input))));
  }

  /** Cancel the run on the server. Closing the connection would not: the run belongs to the server. */
  abortRun() {
    void cancelRuns(this.threadId);
    super.abortRun();
  }
}

/** The history of a thread, which the server keeps: its messages and state, open questions, a run that is still on. */
export function threadHistory(threadId: string): ThreadHistoryAdapter {
  return {
    async load() {
      const thread = await getThread(threadId);
      if (!thread) return { messages: [] };
      const isRunning = thread.runs.some(({ status }) => status === "running");
      const messages = fromAgUiMessages(isRunning ? upToLastUser(thread.messages) : thread.messages);
      const last = messages.at(-1);
      if (last?.role === "assistant" && thread.interrupts.length > 0) {
        messages[messages.length - 1] = { ...last, ...asking(thread.interrupts) };
      }
      const repository = ExportedMessageRepository.fromArray(messages);
      return { ...repository, state: thread.state as any, unstable_resume: isRunning };
    },

    /** Follow the run that is on: what it has written so far, then what it writes. */
    async *resume({ abortSignal }) {
      const agent = new ThreadAgent({ url: `${SERVER}/`, threadId });
      const results: ChatModelRunResult[] = [];
      let wake = () => {};
      let isOver = false;
      const push = (result: ChatModelRunResult) => {
        results.push(result);
        wake();
      };
      const onMessagesChanged = () => {
        const written = fromAgUiMessages(agent.messages.slice(upToLastUser(agent.messages).length));
        const parts = ExportedMessageRepository.fromArray(written).messages.flatMap(({ message }) => [...message.content]);
        push({ content: parts as ChatModelRunResult["content"] });
      };
      agent
        .connectAgent({}, { onMessagesChanged })
        .catch((error) => push({ status: { type: "incomplete", reason: "error", error: String(error) } }))
        .finally(() => {
          if (agent.pendingInterrupts.length > 0) push(asking(agent.pendingInterrupts));
          isOver = true;
          wake();
        });
      while (!isOver && !abortSignal.aborted) {
        await new Promise<void>((resolve) => (wake = resolve));
        yield* results.splice(0);
      }
    },

    async append() {}, // the server has it already
  };
}

/** Mark the last message of a thread as one that waits for answers. */
function asking(interrupts: readonly unknown[]) {
  return {
    status: { type: "requires-action", reason: "interrupt" } as const,
    metadata: { custom: { agui: { interrupts } } },
  };
}

function upToLastUser(messages: readonly Message[]): Message[] {
  return messages.slice(0, messages.findLastIndex(({ role }) => role === "user") + 1);
}
