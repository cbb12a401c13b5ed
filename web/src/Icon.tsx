/** Line icons. They are decoration: the button or the text beside them has the name. */

const PATHS = {
  archive: "M3 5.5h14v3H3zM4.5 8.5v6a1 1 0 001 1h9a1 1 0 001-1v-6M8 11.5h4",
  check: "M4.5 10.5l3.5 3.5 7.5-8",
  clip: "M14.5 9.5l-5 5a3 3 0 01-4.2-4.2l6-6a2 2 0 012.8 2.8l-5.8 5.8a1 1 0 01-1.4-1.4l4.8-4.8",
  clock: "M10 2.5a7.5 7.5 0 100 15 7.5 7.5 0 000-15M10 6v4l2.5 1.8",
  copy: "M8 7.5h7.5v9H8zM5 12.5h-.5v-9H12V4",
  cross: "M5.5 5.5l9 9M14.5 5.5l-9 9",
  down: "M10 4.5v11M5.5 11l4.5 4.5 4.5-4.5",
  edit: "M4 16l.7-3.2 8.6-8.6a1.4 1.4 0 012 0l.5.5a1.4 1.4 0 010 2L7.2 15.3zM11.8 5.7l2.5 2.5",
  file: "M5 3h6.5L15 6.5V17H5zM11.5 3v3.5H15",
  inspect: "M3 15.5h14M5 12.5h4M8 9h6M11 5.5h5",
  left: "M12 5l-5 5 5 5",
  list: "M4 6h12M4 10h12M4 14h12",
  open: "M3 15.5v-11h4.5l1.5 2h8v9zM3 9.5h14",
  plus: "M10 4.5v11M4.5 10h11",
  question: "M10 2.5a7.5 7.5 0 100 15 7.5 7.5 0 000-15M8 8a2 2 0 113.4 1.4c-.7.7-1.4 1-1.4 2.1M10 13.8v.1",
  redo: "M15.5 8.5A6 6 0 1016 12M15.8 4.5v4h-4",
  right: "M8 5l5 5-5 5",
  send: "M10 16V4.5M5 9.5l5-5 5 5",
  shield: "M10 3l6 2v4.5c0 3.6-2.5 6.2-6 7.5-3.5-1.3-6-3.9-6-7.5V5zM7.5 10l2 2 3.5-3.5",
  state: "M7.5 4C5.5 4 6.5 8.5 4 10c2.5 1.5 1.5 6 3.5 6M12.5 4c2 0 1 4.5 3.5 6-2.5 1.5-1.5 6-3.5 6",
  tool: "M16.5 6.5a4 4 0 01-5.3 4.3L6.5 15.5a1.5 1.5 0 01-2-2l4.7-4.7A4 4 0 0113.5 3.5L11.3 5.7l.4 2.6 2.6.4z",
  screen: "M3 4.5h14v9H3zM7.5 16.5h5M10 13.5v3",
  sun: "M10 6.5a3.5 3.5 0 100 7 3.5 3.5 0 000-7M10 2v1.5M10 16.5V18M2 10h1.5M16.5 10H18M4.3 4.3l1.1 1.1M14.6 14.6l1.1 1.1M4.3 15.7l1.1-1.1M14.6 5.4l1.1-1.1",
  moon: "M16 12A6.5 6.5 0 018 4a6.5 6.5 0 108 8z",
  trash: "M4 5.5h12M8 5.5V4h4v1.5M5.5 5.5l.7 11h7.6l.7-11M8.5 8.5v5M11.5 8.5v5",
  warning: "M10 3.5l7 12.5H3zM10 8v4M10 14v.2",
};

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" width={size} height={size} aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round">
      <path d={PATHS[name]} />
    </svg>
  );
}
