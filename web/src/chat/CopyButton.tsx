/** A button that copies text and says so. */

import { useState } from "preact/hooks";
import { Icon } from "../Icon";
import { copyText } from "../inspector/copy";

export function CopyButton({ text }: { text: () => string }) {
  const [isCopied, setCopied] = useState(false);
  return (
    <button
      type="button"
      class="quiet icon-button"
      aria-label={isCopied ? "Copied" : "Copy"}
      title="Copy"
      onClick={() => {
        void copyText(text()).then(() => {
          setCopied(true);
          setTimeout(() => setCopied(false), 1_500);
        });
      }}
    >
      <Icon name={isCopied ? "check" : "copy"} />
    </button>
  );
}
