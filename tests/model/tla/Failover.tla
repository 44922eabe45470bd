------------------------------ MODULE Failover ------------------------------
(* A failover to an asynchronous standby takes the store back to an earlier *)
(* state. Workers of the lost past still hold fences from it: may their     *)
(* results count for attempts of the new present?                           *)
(*                                                                          *)
(* Step stands for the product's 1,000,000,000: larger than any number of   *)
(* claims that a standby can lack. An attempt is known here by a number of  *)
(* its own, which no rollback takes back; the product has its fence alone.  *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Standbys,     \* each lags behind as it likes
  Claims,       \* how many claims there are in all
  Failovers,    \* how many failovers
  Step,         \* what rebuild_queues adds to the fence sequence
  Raise         \* "by a step" as rebuild_queues does, "not at all", or "past the clock"

VARIABLES
  store,     \* the primary: fence sequence, status, the row's fence, and whether boot is filled
  copy,      \* what each standby has received
  current,   \* the attempt that the row really stands for (0: none)
  results,   \* results of bodies, under way for as long as they like
  bodies,    \* attempts whose bodies run
  claimed,   \* claims so far
  failovers, \* failovers so far
  highest,   \* the clock's part: nothing that was ever given out is above it
  stale      \* remembers: a result was applied to an attempt that was not its own

vars == <<store, copy, current, results, bodies, claimed, failovers, highest, stale>>

Max(a, b) == IF a > b THEN a ELSE b

Init ==
  /\ store = [sequence |-> 0, status |-> "enqueued", fence |-> 0, ready |-> TRUE, attempt |-> 0]
  /\ copy = [s \in Standbys |-> store]
  /\ current = 0
  /\ results = {}
  /\ bodies = {}
  /\ claimed = 0
  /\ failovers = 0
  /\ highest = 0
  /\ stale = FALSE

Replicate(s) ==
  /\ copy' = [copy EXCEPT ![s] = store]
  /\ UNCHANGED <<store, current, results, bodies, claimed, failovers, highest, stale>>

(* tuskline.claim: refuses while boot is empty. *)
Claim ==
  /\ store.ready /\ store.status = "enqueued" /\ claimed < Claims
  /\ claimed' = claimed + 1
  /\ store' = [store EXCEPT !.sequence = @ + 1, !.fence = store.sequence + 1,
                            !.status = "held", !.attempt = claimed + 1]
  /\ current' = claimed + 1
  /\ bodies' = bodies \cup {[attempt |-> claimed + 1, fence |-> store.sequence + 1]}
  /\ highest' = Max(highest, store.sequence + 1)
  /\ UNCHANGED <<copy, results, failovers, stale>>

(* A body ends, here or in the lost past, and its result sets out. *)
Finish(b) ==
  /\ b \in bodies
  /\ bodies' = bodies \ {b}
  /\ results' = results \cup {b}
  /\ UNCHANGED <<store, copy, current, claimed, failovers, highest, stale>>

(* tuskline.set_results *)
SetResult(r) ==
  /\ r \in results
  /\ results' = results \ {r}
  /\ IF store.status = "held" /\ store.fence = r.fence
     THEN /\ store' = [store EXCEPT !.status = "success"]
          /\ stale' = (stale \/ r.attempt # current)
     ELSE UNCHANGED <<store, stale>>
  /\ UNCHANGED <<copy, current, bodies, claimed, failovers, highest>>

(* tuskline.rescue: the body has ended before, which is what Lease is about. *)
Rescue ==
  /\ store.status = "held"
  /\ store' = [store EXCEPT !.status = "enqueued"]
  /\ bodies' = {b \in bodies : b.attempt # current}
  /\ UNCHANGED <<copy, current, results, claimed, failovers, highest, stale>>

(* A standby is promoted; its unlogged tables, boot among them, are empty.  *)
Failover(s) ==
  /\ failovers < Failovers
  /\ failovers' = failovers + 1
  /\ store' = [copy[s] EXCEPT !.ready = FALSE]
  /\ current' = copy[s].attempt
  /\ UNCHANGED <<copy, results, bodies, claimed, highest, stale>>

(* tuskline.rebuild_queues *)
Raised ==
  CASE Raise = "not at all" -> store.sequence
    [] Raise = "by a step" -> store.sequence + Step
    [] Raise = "past the clock" -> Max(store.sequence, highest)  \* no failover takes time back

Rebuild ==
  /\ ~store.ready
  /\ store' = [store EXCEPT !.ready = TRUE, !.sequence = Raised]
  /\ UNCHANGED <<copy, current, results, bodies, claimed, failovers, highest, stale>>

Next ==
  \/ Claim \/ Rescue \/ Rebuild
  \/ \E s \in Standbys : Replicate(s) \/ Failover(s)
  \/ \E b \in bodies : Finish(b)
  \/ \E r \in results : SetResult(r)

Spec == Init /\ [][Next]_vars

--------------------------------------------------------------------------
NoStaleResult == ~stale

(* Not promised after a loss: a claim that was lost is made again while the *)
(* body of the first still runs.                                            *)
OneLiveBody == Cardinality(bodies) <= 1
=============================================================================
