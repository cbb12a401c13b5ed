import { AGUIAdapter, type ChatMessagesData } from "@tdesign-react/chat";
import type { StoredThread } from "./server";

/** Return the messages of a stored thread as TDesign Chat draws them. */
export function historyOf(thread: StoredThread): ChatMessagesData[] {
  const { messages } = thread;
  const isRunning = thread.runs.some(({ status }) => status === "running");
  const shown = isRunning ? messages.slice(0, messages.findLastIndex(({ role }) => role === "user") + 1) : messages;
  const converted = AGUIAdapter.convertHistoryMessages(shown.map(asHistoryMessage));
  for (const message of converted) {
    const images = imagesOf(shown.find(({ id }) => id === message.id)?.content);
    if (message.role === "user" && images.length > 0) message.content.push({ type: "attachment", data: images });
  }
  return converted;
}

/** TDesign Chat reads texts, and knows reasoning as a part of an assistant message. */
function asHistoryMessage(message: any): any {
  if (message.role === "reasoning") {
    const reasoningContent = JSON.stringify({ title: "Thought", text: message.content });
    return { id: message.id, role: "assistant", reasoningContent };
  }
  return message.role === "activity" ? message : { ...message, content: textOf(message.content) };
}

function textOf(content: any): string | undefined {
  if (!Array.isArray(content)) return content;
  return content.map((part) => part.text ?? `[${part.type}: ${part.source?.mimeType ?? "file"}]`).join("\n");
}

function imagesOf(content: any): { fileType: "image"; name: string; url: string }[] {
  const parts = Array.isArray(content) ? content.filter(({ type }) => type === "image") : [];
  return parts.map(({ source }) => ({
    fileType: "image",
    name: "image",
    url: source.type === "data" ? `data:${source.mimeType};base64,${source.value}` : source.value,
  }));
}
