------------------------------ MODULE LockOrder ------------------------------
(* Three transactions, each one call of a verb, each taking its row locks   *)
(* one after the other: can they wait for each other in a ring?             *)
(*                                                                          *)
(* A step is <<row, mode>>. wait: waits without limit. timed: gives up      *)
(* after lock_timeout and goes on without the row (put_back_locked, the     *)
(* careful way of enqueue_due). skip: FOR UPDATE SKIP LOCKED.               *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Sessions,  \* concurrent transactions
  Flaw       \* "none", or the verb that breaks the order

VARIABLES
  steps,     \* what each transaction has still to lock
  holds      \* the rows that it has locked; all go when it commits

vars == <<steps, holds>>

Ids == {1, 2}
Batches == {<<1>>, <<2>>, <<1, 2>>}         \* in id order, as every verb sorts them
Reversed(batch) == [n \in 1..Len(batch) |-> batch[Len(batch) + 1 - n]]

Locks(table, batch, mode) == [n \in 1..Len(batch) |-> <<<<table, batch[n]>>, mode>>]

(* The lease of what is settled is dropped after the tasks. *)
LeaseRow(mode) == << <<<<"lease", 1>>, mode>> >>

SetResults(batch) ==
  Locks("task", IF Flaw = "set_results unordered" THEN Reversed(batch) ELSE batch, "wait")
    \o LeaseRow("wait")
Release(batch) == Locks("task", batch, "wait") \o LeaseRow("wait")
Start(batch) == Locks("task", batch, "wait")
Claim(batch) ==
  Locks("queued", batch, "skip")
    \o Locks("task", batch, IF Flaw = "claim waits for ever" THEN "wait" ELSE "timed")
Exchange(results, claims) == SetResults(results) \o Claim(claims)
EnqueueDue(batch) ==
  Locks("timer", batch, "skip")
    \o Locks("task", batch, IF Flaw = "enqueue_due and cancel wait" THEN "wait" ELSE "timed")
Rescue(batch) ==
  LET mode == IF Flaw = "rescue waits" THEN "wait" ELSE "skip"
  IN << <<<<"executor", 1>>, mode>> >> \o LeaseRow(mode) \o Locks("task", batch, mode)
Cancel(id) ==
  Locks("task", <<id>>, "wait")
    \o Locks("timer", <<id>>, IF Flaw = "enqueue_due and cancel wait" THEN "wait" ELSE "skip")
Heartbeat == << <<<<"executor", 1>>, "wait">> >>
EndExecutor == << <<<<"executor", 1>>, "wait">> >> \o LeaseRow("wait")

Verbs ==
  UNION {{SetResults(b), Release(b), Start(b), Claim(b), EnqueueDue(b), Rescue(b)} : b \in Batches}
    \cup {Exchange(<<1>>, <<2>>), Exchange(<<2>>, <<1>>)}
    \cup {Cancel(id) : id \in Ids}
    \cup {Heartbeat, EndExecutor}

Init ==
  /\ steps \in [Sessions -> Verbs]
  /\ holds = [s \in Sessions |-> {}]

Row(s) == Head(steps[s])[1]
Mode(s) == Head(steps[s])[2]
Holder(row, s) == {o \in Sessions \ {s} : row \in holds[o]}

Lock(s) ==
  /\ steps[s] # <<>> /\ Holder(Row(s), s) = {}
  /\ holds' = [holds EXCEPT ![s] = @ \cup {Row(s)}]
  /\ steps' = [steps EXCEPT ![s] = Tail(@)]

GoOnWithout(s) ==
  /\ steps[s] # <<>> /\ Holder(Row(s), s) # {} /\ Mode(s) # "wait"
  /\ steps' = [steps EXCEPT ![s] = Tail(@)]
  /\ UNCHANGED holds

Commit(s) ==
  /\ steps[s] = <<>> /\ holds[s] # {}
  /\ holds' = [holds EXCEPT ![s] = {}]
  /\ UNCHANGED steps

Next == \E s \in Sessions : Lock(s) \/ GoOnWithout(s) \/ Commit(s)

Spec == Init /\ [][Next]_vars

--------------------------------------------------------------------------
Alike == Permutations(Sessions)

OneHolder == \A s, o \in Sessions : s # o => holds[s] \cap holds[o] = {}

WaitsFor(s) ==
  IF steps[s] = <<>> \/ Mode(s) # "wait" THEN {} ELSE Holder(Row(s), s)

(* No ring: no set of transactions of which each waits for one of the set. *)
NoDeadlock ==
  ~\E ring \in SUBSET Sessions :
     ring # {} /\ \A s \in ring : WaitsFor(s) \cap ring # {}
=============================================================================
