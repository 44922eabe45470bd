-------------------------------- MODULE Wake --------------------------------
(* Wake only the sleeping: a controller takes the exclusive session lock of *)
(* the queue it found empty, looks once more, and sleeps; a transaction     *)
(* that inserts tries the shared lock, and notifies only if it fails.       *)
(* Does anybody sleep past a committed row?                                 *)
EXTENDS Naturals, FiniteSets

CONSTANTS
  Controllers,   \* those of one queue (worker-sdk: controller, wake.rs)
  Inserters,     \* transactions that insert one row each (tuskline.route)
  Poll,          \* the safety poll, at most 1 s
  Losses,        \* how many notifications the network swallows
  Deaths,        \* how many controllers die
  Flaw           \* "none" or "looks before it locks"

VARIABLES
  insert,   \* each transaction: begun, inserted (not committed), committed
  tells,    \* the transaction notifies when it commits (pg_notify in tuskline.wake)
  shares,   \* transactions that hold the shared lock
  owner,    \* the controller that holds the exclusive lock ("nobody": none)
  rows,     \* committed queue rows
  sight,    \* each controller (sight.rs): hot, dozing, last, asleep, or dead
  heard,    \* a notification has arrived
  losses, deaths

vars == <<insert, tells, shares, owner, rows, sight, heard, losses, deaths>>

Init ==
  /\ insert = [i \in Inserters |-> "begun"]
  /\ tells = [i \in Inserters |-> FALSE]
  /\ shares = {}
  /\ owner = "nobody"
  /\ rows = 0
  /\ sight = [c \in Controllers |-> "hot"]
  /\ heard = [c \in Controllers |-> FALSE]
  /\ losses = Losses
  /\ deaths = Deaths

(* tuskline.route, then tuskline.wake: the row first, the lock after it. *)
Insert(i) ==
  /\ insert[i] = "begun"
  /\ insert' = [insert EXCEPT ![i] = "inserted"]
  /\ UNCHANGED <<tells, shares, owner, rows, sight, heard, losses, deaths>>

TryShared(i) ==
  /\ insert[i] = "inserted" /\ i \notin shares /\ ~tells[i]
  /\ IF owner = "nobody"
     THEN shares' = shares \cup {i} /\ UNCHANGED tells
     ELSE tells' = [tells EXCEPT ![i] = TRUE] /\ UNCHANGED shares
  /\ UNCHANGED <<insert, owner, rows, sight, heard, losses, deaths>>

(* The row, the end of the shared lock and the notification, all at once;   *)
(* the notification reaches whoever LISTENs, unless it is lost on its way.  *)
Commit(i) ==
  /\ insert[i] = "inserted" /\ (i \in shares \/ tells[i])
  /\ insert' = [insert EXCEPT ![i] = "committed"]
  /\ shares' = shares \ {i}
  /\ rows' = rows + 1
  /\ \/ heard' = [c \in Controllers |-> heard[c] \/ tells[i]] /\ UNCHANGED losses
     \/ tells[i] /\ losses > 0 /\ losses' = losses - 1 /\ UNCHANGED heard
  /\ UNCHANGED <<tells, owner, sight, deaths>>

(* A claim. It takes a row, or finds the queue empty. *)
Take(c) ==
  /\ rows' = rows - 1
  /\ sight' = [sight EXCEPT ![c] = "hot"]
  /\ owner' = IF owner = c THEN "nobody" ELSE owner     \* tuskline.rouse

Look(c) ==
  /\ sight[c] \in {"hot", "last"}
  /\ IF rows > 0
     THEN Take(c)
     ELSE /\ sight' = [sight EXCEPT ![c] = IF sight[c] = "hot" THEN "dozing" ELSE "asleep"]
          /\ UNCHANGED <<rows, owner>>
  /\ UNCHANGED <<insert, tells, shares, heard, losses, deaths>>

(* tuskline.doze: held (ours), taken (another controller's) or busy (poll). *)
Doze(c) ==
  /\ sight[c] = "dozing"
  /\ LET locked == IF Flaw = "looks before it locks" THEN "asleep" ELSE "last" IN
     IF owner = "nobody" /\ shares # {}
     THEN sight' = [sight EXCEPT ![c] = "hot"] /\ UNCHANGED owner
     ELSE /\ sight' = [sight EXCEPT ![c] = locked]
          /\ owner' = IF owner = "nobody" THEN c ELSE owner
  /\ UNCHANGED <<insert, tells, shares, rows, heard, losses, deaths>>

Wakes(c) ==
  /\ sight' = [sight EXCEPT ![c] = "hot"]
  /\ owner' = IF owner = c THEN "nobody" ELSE owner
  /\ UNCHANGED <<insert, tells, shares, rows, losses, deaths>>

Hear(c) ==
  /\ heard[c] /\ sight[c] # "dead"
  /\ heard' = [heard EXCEPT ![c] = FALSE]
  /\ Wakes(c)

SafetyPoll(c) == Poll /\ sight[c] = "asleep" /\ Wakes(c) /\ UNCHANGED heard

(* A session that ends gives up its lock, and tells nobody. *)
Die(c) ==
  /\ deaths > 0 /\ deaths' = deaths - 1 /\ sight[c] # "dead"
  /\ sight' = [sight EXCEPT ![c] = "dead"]
  /\ owner' = IF owner = c THEN "nobody" ELSE owner
  /\ UNCHANGED <<insert, tells, shares, rows, heard, losses>>

Next ==
  \/ \E i \in Inserters : Insert(i) \/ TryShared(i) \/ Commit(i)
  \/ \E c \in Controllers : Look(c) \/ Doze(c) \/ Hear(c) \/ SafetyPoll(c) \/ Die(c)

(* Nobody is obliged to begin an insert, or to notice nothing for ever.     *)
Spec ==
  /\ Init /\ [][Next]_vars
  /\ \A i \in Inserters : WF_vars(TryShared(i)) /\ WF_vars(Commit(i))
  /\ \A c \in Controllers :
       WF_vars(Look(c)) /\ WF_vars(Doze(c)) /\ WF_vars(Hear(c)) /\ WF_vars(SafetyPoll(c))

--------------------------------------------------------------------------
OneOwner == owner = "nobody" \/ shares = {}
Counted == rows <= Cardinality({i \in Inserters : insert[i] = "committed"})

(* While a row waits, somebody is awake, or has been told, or will look. *)
NobodySleepsPast ==
  rows > 0 => \E c \in Controllers :
    \/ sight[c] \in {"hot", "dozing", "last"}
    \/ sight[c] = "asleep" /\ heard[c]

EventuallyClaimed == []<>(rows = 0)
=============================================================================
