------------------------------- MODULE Queues -------------------------------
(* The queues are buffers that a crash empties. Is every accepted task      *)
(* found again, claimed in the end, and never claimed while it is held?     *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Tasks,      \* task ids
  Later,      \* those that are due later: they get a timer (tuskline_core.accept_rest)
  Crashes,    \* crashes of the database, or failovers without loss
  Deaths,     \* workers that die with a task in hand
  Releases,   \* tasks given back by a drain
  Flaw        \* "none", or the rule that is broken

VARIABLES
  status,     \* tuskline.task: absent, new, enqueued, held, success
  opened,     \* rows of open transactions: what they will become at commit
  timers,     \* tuskline.timer
  queued,     \* tuskline.queued, which may hold a task twice: <<task, copy>>
  ready,      \* tuskline.boot has its row
  leases,     \* tuskline.lease
  fence,      \* tuskline.fence_seq
  fences,     \* remembers: every (task, fence) that was ever claimed
  twice,      \* remembers: a task was claimed while it was held, or twice with one fence
  crashes, deaths, releases

vars == <<status, opened, timers, queued, ready, leases, fence, fences, twice,
          crashes, deaths, releases>>
rest == <<fence, fences, twice, deaths, releases>>

Copies == {1, 2}

Init ==
  /\ status = [t \in Tasks |-> "absent"]
  /\ opened = {}
  /\ timers = {}
  /\ queued = {}
  /\ ready = FALSE               \* a fresh install is rebuilt once, too
  /\ leases = {}
  /\ fence = 0
  /\ fences = {}
  /\ twice = FALSE
  /\ crashes = Crashes
  /\ deaths = Deaths
  /\ releases = Releases

InQueue(t) == \E c \in Copies : <<t, c>> \in queued

(* tuskline.queued gets one row more for the task. *)
Put(t, queue) == IF <<t, 1>> \in queue THEN queue \cup {<<t, 2>>} ELSE queue \cup {<<t, 1>>}

(* tuskline_core.route: the row and its queue row or timer, in one transaction.  *)
Schedule(t) ==
  /\ status[t] = "absent" /\ t \notin opened
  /\ opened' = opened \cup {t}
  /\ UNCHANGED <<status, timers, queued, ready, leases, crashes, rest>>

Commit(t) ==
  /\ t \in opened
  /\ opened' = opened \ {t}
  /\ IF t \in Later
     THEN /\ status' = [status EXCEPT ![t] = "new"]
          /\ timers' = timers \cup {t}
          /\ UNCHANGED queued
     ELSE /\ status' = [status EXCEPT ![t] = "enqueued"]
          /\ queued' = Put(t, queued)
          /\ UNCHANGED timers
  /\ UNCHANGED <<ready, leases, crashes, rest>>

(* tuskline.enqueue_due *)
EnqueueDue(t) ==
  /\ t \in timers
  /\ timers' = timers \ {t}
  /\ status' = [status EXCEPT ![t] = "enqueued"]
  /\ queued' = Put(t, queued)
  /\ UNCHANGED <<opened, ready, leases, crashes, rest>>

(* tuskline.claim: pop takes the queue row in any case, take the task only  *)
(* if it is enqueued.                                                       *)
MayClaim == ready \/ Flaw = "no rebuild"
Takes(t) == status[t] \in IF Flaw = "no status in take" THEN {"enqueued", "held"} ELSE {"enqueued"}

Claim(t, c) ==
  /\ MayClaim /\ <<t, c>> \in queued
  /\ queued' = queued \ {<<t, c>>}
  /\ IF Takes(t)
     THEN /\ fence' = fence + 1
          /\ fences' = fences \cup {<<t, fence + 1>>}
          /\ twice' = (twice \/ status[t] = "held" \/ <<t, fence + 1>> \in fences)
          /\ status' = [status EXCEPT ![t] = "held"]
          /\ leases' = leases \cup {t}
     ELSE UNCHANGED <<fence, fences, twice, status, leases>>
  /\ UNCHANGED <<opened, timers, ready, crashes, deaths, releases>>

SetResult(t) ==
  /\ t \in leases
  /\ status' = [status EXCEPT ![t] = "success"]
  /\ leases' = leases \ {t}
  /\ UNCHANGED <<opened, timers, queued, ready, crashes, rest>>

(* tuskline.rescue after a worker's death, tuskline.release before its end. *)
BackToQueue(t) ==
  /\ t \in leases
  /\ leases' = leases \ {t}
  /\ status' = [status EXCEPT ![t] = "enqueued"]
  /\ queued' = Put(t, queued)
  /\ UNCHANGED <<opened, timers, ready, crashes, fence, fences, twice>>

Rescue(t) == deaths > 0 /\ deaths' = deaths - 1 /\ UNCHANGED releases /\ BackToQueue(t)
Release(t) == releases > 0 /\ releases' = releases - 1 /\ UNCHANGED deaths /\ BackToQueue(t)

(* Unlogged tables are empty afterwards, and open transactions gone.        *)
Crash ==
  /\ crashes > 0
  /\ crashes' = crashes - 1
  /\ queued' = {}
  /\ ready' = FALSE
  /\ opened' = {}
  /\ UNCHANGED <<status, timers, leases, rest>>

(* tuskline.rebuild_queues, under its advisory lock.                        *)
Found == {t \in Tasks : status[t] = "enqueued"}

Rebuild ==
  /\ ~ready /\ Flaw # "no rebuild"
  /\ ready' = TRUE
  /\ queued' = IF Flaw = "boot marked, queues not filled" THEN queued
               ELSE queued \cup {<<t, IF <<t, 1>> \in queued THEN 2 ELSE 1>> : t \in Found}
  /\ UNCHANGED <<status, opened, timers, leases, crashes, rest>>

Next ==
  \/ Crash \/ Rebuild
  \/ \E t \in Tasks :
       Schedule(t) \/ Commit(t) \/ EnqueueDue(t) \/ SetResult(t) \/ Rescue(t) \/ Release(t)
  \/ \E t \in Tasks, c \in Copies : Claim(t, c)

Spec == Init /\ [][Next]_vars

Live ==
  /\ Spec /\ WF_vars(Rebuild)
  /\ \A t \in Tasks : WF_vars(Commit(t)) /\ WF_vars(EnqueueDue(t)) /\ WF_vars(SetResult(t))
                      /\ WF_vars(\E c \in Copies : Claim(t, c))

--------------------------------------------------------------------------
(* Whatever waits is where it is looked for, or the marker says rebuild.    *)
FoundAgain ==
  \A t \in Tasks :
    /\ status[t] = "new" => t \in timers
    /\ status[t] = "enqueued" => InQueue(t) \/ ~ready
    /\ status[t] = "held" => t \in leases

NeverClaimedTwice == ~twice

EventuallyClaimed ==
  \A t \in Tasks : (status[t] \in {"new", "enqueued"}) ~> (status[t] = "held")
=============================================================================
