import { MessagePrimitive, ThreadPrimitive, type ToolCallMessagePartProps } from "@assistant-ui/react";

/** The messages of a thread. */
export function Messages() {
  return (
    <ThreadPrimitive.Viewport className="messages" role="log" aria-label="Messages">
      <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
    </ThreadPrimitive.Viewport>
  );
}

function UserMessage() {
  return (
    <MessagePrimitive.Root className="message user">
      <MessagePrimitive.Parts components={{ Image }} />
      <MessagePrimitive.Attachments components={{ Attachment: () => <span>(image)</span> }} />
    </MessagePrimitive.Root>
  );
}

function AssistantMessage() {
  return (
    <MessagePrimitive.Root className="message assistant">
      <MessagePrimitive.Parts
        components={{
          Text: ({ text }) => <div className="text">{text}</div>,
          Reasoning: ({ text }) => <div className="reasoning">{text}</div>,
          Image,
          tools: { Fallback: ToolCall },
        }}
      />
    </MessagePrimitive.Root>
  );
}

function ToolCall({ toolName, argsText, result }: ToolCallMessagePartProps) {
  return (
    <div className="card">
      <code>
        {toolName}({argsText})
      </code>
      {result !== undefined && <div>{typeof result === "string" ? result : JSON.stringify(result)}</div>}
    </div>
  );
}

function Image({ image }: { image: string }) {
  return <img src={image} alt="attachment" />;
}
