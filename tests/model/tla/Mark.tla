-------------------------------- MODULE Mark --------------------------------
(* A claim starts above a low-water mark, below which nothing should be     *)
(* left. Numbers are drawn before they are committed, in any order: is      *)
(* every row claimed in the end?                                            *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Inserters,  \* transactions that insert one queue row each
  Aborts,     \* claims that lock a row and roll back
  Sweep,      \* whether the queue is looked at from zero now and then
  Rule        \* how the mark moves: "snapshot" (low_water_mark.rs) or "cursor" (id > last)

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
  /\ age[i] # 0 /\ number[i] = 0
  /\ drawn' = drawn + 1
  /\ number' = [number EXCEPT ![i] = drawn + 1]
  /\ UNCHANGED <<age, done, claimed, locked, started, mark, pending, aborts>>

Commit(i) ==
  /\ number[i] # 0 /\ i \notin done
  /\ done' = done \cup {i}
  /\ UNCHANGED <<number, age, claimed, locked, drawn, started, mark, pending, aborts>>

(* The claim's snapshot: everything before xmin has ended, nothing from     *)
(* xmax on had begun.                                                       *)
Open == {age[i] : i \in {j \in Inserters : age[j] # 0 /\ j \notin done}}
          \cup (IF locked[1] = 0 THEN {} ELSE {locked[2]})
Xmax == started + 1
Xmin == CHOOSE x \in Open \cup {Xmax} : \A y \in Open \cup {Xmax} : x <= y

Visible(from) == {number[i] : i \in {j \in done : number[j] > from}} \ (claimed \cup {locked[1]})
Least(numbers) == CHOOSE n \in numbers : \A o \in numbers : n <= o
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

(* Another claim locks a row and rolls back; meanwhile it is passed over    *)
(* (SKIP LOCKED).                                                           *)
LockRow ==
  /\ aborts > 0 /\ locked[1] = 0 /\ Visible(0) # {}
  /\ aborts' = aborts - 1
  /\ started' = started + 1
  /\ locked' = <<Least(Visible(0)), started + 1>>
  /\ UNCHANGED <<number, age, done, claimed, drawn, mark, pending>>

LetGo ==
  /\ locked[1] # 0
  /\ locked' = <<0, 0>>
  /\ UNCHANGED <<number, age, done, claimed, drawn, started, mark, pending, aborts>>

(* Mark::learn *)
Learn(first) ==
  LET knows == pending[1] # 0 /\ Xmin >= pending[2] IN
  CASE Rule = "cursor" -> mark' = Max(mark, first) /\ UNCHANGED pending
    [] knows -> /\ mark' = Max(mark, Min(pending[1], first - 1))
                /\ pending' = <<first, Xmax>>
    [] pending[1] = 0 -> pending' = <<first, Xmax>> /\ UNCHANGED mark
    [] OTHER -> UNCHANGED <<mark, pending>>

Claim(from) ==
  /\ Visible(from) # {}
  /\ claimed' = claimed \cup {Least(Visible(from))}
  /\ Learn(Least(Visible(from)))
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
