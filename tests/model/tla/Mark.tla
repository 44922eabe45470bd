-------------------------------- MODULE Mark --------------------------------
(* A claim starts above a low-water mark, below which nothing should be     *)
(* left. Numbers are drawn before they are committed, in any order, and a   *)
(* claim passes over rows that another claim is taking, which may roll      *)
(* back: is every row claimed in the end?                                   *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Inserters,  \* transactions that insert one queue row each
  Aborts,     \* claims that lock a row and roll back
  Sweep,      \* whether the queue is looked at from zero now and then
  Rule        \* "snapshot" as built (low_water_mark.rs, pop), or a flaw:
              \* "cursor" (id > last), "taken" (the first number is that of the first row taken)
              \* or "drawn early" (a number is drawn before the transaction has its own)

VARIABLES
  number,     \* each inserter's queue number, drawn at its beginning (0: not begun)
  age,        \* each inserter's transaction number, assigned just before (0: none)
  done,       \* inserters that have committed
  claimed,    \* rows that were claimed
  locked,     \* a row that another claim has locked and will let go (0: none), and its transaction
  drawn, started, \* last queue number, last transaction number
  mark,       \* nothing at or below it is left, says low_water_mark.rs
  pending,    \* <<last number of a claim, its snapshot's xmax>>, or <<0, 0>>
  aborts

vars == <<number, age, done, claimed, locked, drawn, started, mark, pending, aborts>>

Init ==
  /\ number = [i \in Inserters |-> 0]
  /\ age = [i \in Inserters |-> 0]
  /\ done = {}
  /\ claimed = {}
  /\ locked = <<0, 0>>
  /\ drawn = 0
  /\ started = 0
  /\ mark = 0
  /\ pending = <<0, 0>>
  /\ aborts = Aborts

Begin(i) ==
  /\ age[i] = 0
  /\ started' = started + 1
  /\ age' = [age EXCEPT ![i] = started + 1]
  /\ UNCHANGED <<number, done, claimed, locked, drawn, mark, pending, aborts>>

Draw(i) ==
  /\ (age[i] # 0 \/ Rule = "drawn early") /\ number[i] = 0
  /\ drawn' = drawn + 1
  /\ number' = [number EXCEPT ![i] = drawn + 1]
  /\ UNCHANGED <<age, done, claimed, locked, started, mark, pending, aborts>>

Commit(i) ==
  /\ number[i] # 0 /\ age[i] # 0 /\ i \notin done
  /\ done' = done \cup {i}
  /\ UNCHANGED <<number, age, claimed, locked, drawn, started, mark, pending, aborts>>

(* The claim's snapshot: everything before xmin has ended, nothing from     *)
(* xmax on had begun.                                                       *)
Open == {age[i] : i \in {j \in Inserters : age[j] # 0 /\ j \notin done}}
          \cup (IF locked[1] = 0 THEN {} ELSE {locked[2]})
Xmax == started + 1
Xmin == CHOOSE x \in Open \cup {Xmax} : \A y \in Open \cup {Xmax} : x <= y

(* A look sees a row that another claim is taking. To lock it is not tried. *)
Seen(from) == {number[i] : i \in {j \in done : number[j] > from}} \ claimed
Free(from) == Seen(from) \ {locked[1]}
Least(numbers) == CHOOSE n \in numbers : \A o \in numbers : n <= o
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

(* Another claim locks a row and rolls back.                                *)
LockRow ==
  /\ aborts > 0 /\ locked[1] = 0 /\ Free(0) # {}
  /\ aborts' = aborts - 1
  /\ started' = started + 1
  /\ locked' = <<Least(Free(0)), started + 1>>
  /\ UNCHANGED <<number, age, done, claimed, drawn, mark, pending>>

LetGo ==
  /\ locked[1] # 0
  /\ locked' = <<0, 0>>
  /\ UNCHANGED <<number, age, done, claimed, drawn, started, mark, pending, aborts>>

(* LowWaterMark::learn: the first number that the claim saw and the last    *)
(* that it took, or 0.                                                      *)
Learn(first, last) ==
  LET knows == pending[1] # 0 /\ Xmin >= pending[2]
      next == IF last = 0 THEN <<0, 0>> ELSE <<last, Xmax>>
      reach == IF first = 0 THEN pending[1] ELSE Min(pending[1], first - 1) IN
  CASE Rule = "cursor" -> mark' = Max(mark, last) /\ UNCHANGED pending
    [] knows -> mark' = Max(mark, reach) /\ pending' = next
    [] pending[1] = 0 -> pending' = next /\ UNCHANGED mark
    [] OTHER -> UNCHANGED <<mark, pending>>

Claim(from) ==
  LET first == IF Seen(from) = {} THEN 0 ELSE Least(Seen(from))
      last == IF Free(from) = {} THEN 0 ELSE Least(Free(from)) IN
  /\ claimed' = claimed \cup ({last} \ {0})
  /\ Learn(IF Rule = "taken" THEN last ELSE first, last)
  /\ UNCHANGED <<number, age, done, locked, drawn, started, aborts>>

ClaimAbove == Claim(mark)
ClaimFromZero == Sweep /\ Claim(0)

Next ==
  \/ ClaimAbove \/ ClaimFromZero \/ LockRow \/ LetGo
  \/ \E i \in Inserters : Begin(i) \/ Draw(i) \/ Commit(i)

Spec ==
  /\ Init /\ [][Next]_vars
  /\ WF_vars(ClaimAbove) /\ WF_vars(ClaimFromZero) /\ WF_vars(LetGo)

--------------------------------------------------------------------------
(* Nothing that is committed, or still may be, lies at or below the mark.   *)
NothingPassed ==
  \A i \in Inserters : number[i] # 0 /\ number[i] <= mark => number[i] \in claimed

NothingInvented == claimed \subseteq {number[i] : i \in done}

EverythingClaimed == \A i \in Inserters : (i \in done) ~> (number[i] \in claimed)
=============================================================================
