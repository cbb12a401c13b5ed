import type { MessagePart, UIMessage } from "@tanstack/ai-client";
import { useEffect, useRef } from "react";

/** The messages of a thread. The result of a tool call is shown with the call. */
export function Messages({ messages }: { messages: UIMessage[] }) {
  const log = useRef<HTMLDivElement>(null);
  useEffect(() => {
    log.current?.scrollTo({ top: log.current.scrollHeight });
  }, [messages]);
  return (
    <div className="messages" role="log" aria-label="Messages" ref={log}>
      {messages.map((message) => (
        <div key={message.id} className={`message ${message.role}`}>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} parts={message.parts} />
          ))}
        </div>
      ))}
    </div>
  );
}

function Part({ part, parts }: { part: MessagePart; parts: MessagePart[] }) {
  switch (part.type) {
    case "text":
      return <div>{part.content}</div>;
    case "thinking":
      return <div className="reasoning">{part.content}</div>;
    case "image":
      return <img src={addressOf(part.source)} alt="attachment" />;
    case "tool-call": {
      const result = parts.find((other) => other.type === "tool-result" && other.toolCallId === part.id);
      return <ToolCall name={part.name} args={part.arguments} result={result?.type === "tool-result" ? result.content : undefined} />;
    }
    default:
      return null;
  }
}

function ToolCall({ name, args, result }: { name: string; args: string; result?: string | any[] }) {
  if (name === "get_weather" && typeof result === "string") {
    const { city, degrees } = JSON.parse(result);
    return (
      <div className="card weather">
        {city} <strong>{degrees} °C</strong>
      </div>
    );
  }
  return (
    <div className="card">
      <code>
        {name}({args})
      </code>
      {Array.isArray(result)
        ? result.map((part, index) => <Part key={index} part={{ ...part, content: part.text }} parts={[]} />)
        : result !== undefined && <div>{result}</div>}
    </div>
  );
}

function addressOf(source: { type: string; value: string; mimeType?: string }): string {
  return source.type === "data" ? `data:${source.mimeType};base64,${source.value}` : source.value;
}
