// The few signs of the tool bars, drawn as lines in a box of 16.
const PATHS = {
  play: "M5 3 L13 8 L5 13 Z",
  step: "M3 3 L9 8 L3 13 Z M12 3 V13",
  stop: "M4 4 H12 V12 H4 Z",
  undo: "M6 3 L2.5 6.5 L6 10 M2.5 6.5 H10 A3.5 3.5 0 0 1 10 13.5 H6",
  redo: "M10 3 L13.5 6.5 L10 10 M13.5 6.5 H6 A3.5 3.5 0 0 0 6 13.5 H10",
  fit: "M2 6 V2 H6 M10 2 H14 V6 M14 10 V14 H10 M6 14 H2 V10",
  plus: "M8 3 V13 M3 8 H13",
  minus: "M3 8 H13",
  file: "M4 2 H9.5 L12.5 5 V14 H4 Z M9.5 2 V5 H12.5",
  folder: "M2 4 H6.5 L8 5.5 H14 V13 H2 Z",
  save: "M3 3 H11 L13 5 V13 H3 Z M5.5 3 V6 H10 V3 M5 13 V9 H11 V13",
  sun: "M8 5 A3 3 0 1 1 8 11 A3 3 0 1 1 8 5 M8 1 V2.5 M8 13.5 V15 M1 8 H2.5 M13.5 8 H15 M3 3 L4 4 M12 12 L13 13 M13 3 L12 4 M4 12 L3 13",
  moon: "M13 10 A6 6 0 1 1 7 2.5 A5 5 0 0 0 13 10 Z",
  help: "M5.5 6 A2.5 2.5 0 1 1 8 8.5 V10 M8 12.4 V13",
  code: "M5.5 4 L2 8 L5.5 12 M10.5 4 L14 8 L10.5 12",
  windows: "M2 2 H14 V14 H2 Z M2 6 H14 M2 10 H14 M6 2 V14 M10 2 V14",
  table: "M2 3 H14 V13 H2 Z M2 6.5 H14 M2 10 H14 M6.5 3 V13",
  trash: "M3 4.5 H13 M6 4.5 V3 H10 V4.5 M4.5 4.5 L5 13.5 H11 L11.5 4.5",
  copy: "M6 6 H13.5 V13.5 H6 Z M10 6 V2.5 H2.5 V10 H6",
  close: "M4 4 L12 12 M12 4 L4 12",
  down: "M8 2 V11 M4.5 7.5 L8 11 L11.5 7.5 M3 14 H13",
  bulb: "M6 12 H10 M6.5 14 H9.5 M8 2 A4 4 0 0 1 10 9.5 V12 H6 V9.5 A4 4 0 0 1 8 2",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): React.JSX.Element {
  return (
    <svg className="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
