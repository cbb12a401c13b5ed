import type { InputContent, Message, ToolMessage } from "@ag-ui/client";
import { useEffect, useRef } from "react";

/** The messages of a thread. Tool messages are shown beside the calls that they answer. */
export function Messages({ messages }: { messages: Message[] }) {
  const results = new Map(messages.flatMap((m) => (m.role === "tool" ? [[m.toolCallId, m] as const] : [])));
  const log = useRef<HTMLDivElement>(null);
  useEffect(() => {
    log.current?.scrollTo({ top: log.current.scrollHeight });
  }, [messages]);
  return (
    <div className="messages" role="log" aria-label="Messages" ref={log}>
      {messages.map((message) => (
        <MessageView key={message.id} message={message} results={results} />
      ))}
    </div>
  );
}

function MessageView({ message, results }: { message: Message; results: Map<string, ToolMessage> }) {
  switch (message.role) {
    case "user":
      return (
        <div className="message user">
          <Content content={message.content} />
        </div>
      );
    case "assistant":
      return (
        <>
          {message.content && <div className="message assistant">{message.content}</div>}
          {message.toolCalls?.map((call) => (
            <ToolCallView key={call.id} name={call.function.name} args={call.function.arguments} result={results.get(call.id)} />
          ))}
        </>
      );
    case "reasoning":
      return <div className="message reasoning">{message.content}</div>;
    case "activity":
      return <Activity type={message.activityType} content={message.content} />;
    default:
      return null;
  }
}

function ToolCallView({ name, args, result }: { name: string; args: string; result?: ToolMessage }) {
  if (name === "get_weather" && typeof result?.content === "string") {
    const { city, degrees } = JSON.parse(result.content);
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
      {result && <Content content={result.content} />}
    </div>
  );
}

function Content({ content }: { content: string | InputContent[] }) {
  const parts: InputContent[] = typeof content === "string" ? [{ type: "text", text: content }] : content;
  return parts.map((part, index) => {
    if (part.type === "text") return <div key={index}>{part.text}</div>;
    if (part.type !== "image") return <div key={index}>[{part.type}]</div>;
    const { source } = part;
    const address = source.type === "data" ? `data:${source.mimeType};base64,${source.value}` : source.value;
    return <img key={index} src={address} alt="attachment" />;
  });
}

function Activity({ type, content }: { type: string; content: Record<string, any> }) {
  if (type !== "PLAN") return <div className="card">{type}</div>;
  return (
    <ul className="card plan" aria-label="Plan">
      {content.steps.map((step: { title: string; done: boolean }) => (
        <li key={step.title}>
          {step.done ? "☑" : "☐"} {step.title}
        </li>
      ))}
    </ul>
  );
}
