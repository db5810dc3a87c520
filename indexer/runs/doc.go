// Package runs is the index of which worker holds which blocks of which prompts, as the engines' events tell it.
//
// A prompt is named by its chain: the sequence hashes of its blocks, each naming its block and all before it. In the common
// case a query walks along its chain and finds, for each slot, how many leading blocks it holds, on the device and behind
// that on lower tiers; and one writer applies stores and removals, which name blocks by hashes of the engine's own.
//
// Blocks lie in runs, unbranched stretches of chains. Three prompts, of which two share three blocks, and two workers:
//
//	table      runs          who holds what
//	  a -----> a b c d e     {1 2} from a, {2} from d
//	  x -----> x y           {1}                          prompt a b c x y
//	  k -----> k l m         {1} from k, {} from l, {1} from m: a gap
//
// Why this is small, fast and exact:
//
//   - A sequence hash names the whole prefix. So one compare, of the last hash of a run, confirms the run; where the chain
//     leaves it, a binary search tells. A query of 512 blocks looks at two or three places.
//   - Only the first hash of a run is a key. Runs are never split: what branches off, or is longer than 512 blocks, begins a
//     run of its own, and the other need not know.
//   - Who holds what is kept by piece, a stretch with one set of holders. Sets are immutable and each exists once. A gap is a
//     piece, too: an overlap is never longer than what is held.
//   - Readers see immutable runs, replaced whole through an atomic pointer. They take no lock and never wait.
//   - A holder is a bit in sets. Giving a worker up retires its bit, which readers see at once; Tidy takes it from the sets
//     a few runs at a time, and only then may it stand for another.
//
// Rejected: one entry per block in a flat table, whose readers must either look at each block or guess; a radix tree of
// nodes that split, where readers need locks.
//
// What the caller passes. Hashes of an engine are only meaningful within one holder: they resolve parents and removals.
// Where an engine announces the same tokens for several cache groups under the same hash, pass the events of one group: the
// one with full attention. Of two engine hashes for one block of ours, as when the caller leaves something out of a block's
// hash that the engine puts in, only the first counts.
//
// Files: index.go is the writer's side, overlap.go the readers'; run.go the runs and how they are painted; table.go finds
// them; sets.go are the holder sets; holder.go gives out bits and takes them back; engine.go resolves the engines' hashes;
// orphan.go is what waits for a parent; bound.go keeps the memory in bounds; snapshot.go saves, load.go
// restores, and park.go gives slots new numbers.
package runs
