// Settings of Svelte Flow that the live view and the editor share.

export const FLOW = {
  fitView: true,
  nodeOrigin: [0.5, 0.5] as [number, number],
  minZoom: 0.05,
  maxZoom: 3,
  elevateEdgesOnSelect: false,
  zoomOnDoubleClick: false,
  proOptions: { hideAttribution: true },
};
