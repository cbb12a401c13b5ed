/** A button that copies text and says so. */

import { useState } from "preact/hooks";
import { copyText } from "../inspector/copy";

export function CopyButton({ text }: { text: () => string }) {
  const [isCopied, setCopied] = useState(false);
  return (
    <button
      class="quiet"
      onClick={() => {
        void copyText(text()).then(() => {
          setCopied(true);
          setTimeout(() => setCopied(false), 1_500);
        });
      }}
    >
      {isCopied ? "Copied" : "Copy"}
    </button>
  );
}
