package words

// Prose are the words that no text may contain: docs, chart, demo, scripts, messages and comments.
var Prose = []Rule{
	{
		Not:    `slices?`,
		Except: `(?:memory|GPU|compute) slices?|memory-slices?|time-slices?|slices? of (?:bytes|strings)|(?:nil|empty|byte|Go|fresh) slices?`,
		But:    "MIG device, memory slice, ResourceSlice or time-slice",
	},
	{Not: `in turns|take turns|takes turns|a turn|turns on it|turns of|(?:long|short|longer|shorter) turns`, But: "time-slicing, time-sliced share"},
	{Not: `how long a turn is|(?:long|short)er time slices?|time slices?`, But: "time-slice interval, time-slice"},
	{Not: `cut in|cut into|cut up|(?:is|are|be|been|being) cut|can be cut|parted|in parts`, Except: `(?:is|are|be|been|being) cut off`, But: "partition(ed), MIG device"},
	{Not: `offer(?:s|ed|ing|ings)?`, But: "advertise(d), layout"},
	{Not: `anew`, But: "again, recreated"},
	{Not: `served`, Except: `first served|served versions?|served (?:at|over|on port|from)`, But: "supported"},
	{Not: `debts?|owe[sd]?|owing|pay|pays|paid|paying`, But: "pending cleanup; defer, retry cleanup"},
	{Not: `tells?|telling|told`, But: "report(ed); distinguish"},
	{Not: `look(?:s|ed|ing)?`, Except: `look(?:s|ed|ing)? (?:up|like)`, But: "inspect, check, probe"},
	{
		Not: `(?:is|are|was|were|be|been|being) given|given (?:to|out)|gives? (?:it |them )?out|hands? (?:it |them )?(?:out|over)|handed (?:out|over)|` +
			`handing (?:out|over)|(?:has|have|had) it alone`,
		Except: `(?:is|are|was|were) given twice`,
		But:    "allocated, prepared, exclusive",
	},
	{
		Not: `(?:process|program|plugin|controller|driver)(?:s|es)? (?:that |which )?(?:ends?|ended|ending)|ends by|ends with (?:status|exit|SIG\w+)`,
		But: "exits, exiting",
	},
	{Not: `laws?`, But: "invariant(s)"},
	{Not: `lives|(?:a|one|each|every|random|such a) life`, Except: `lives (?:in|on|at|as|under|below|longer)`, But: "scenario(s)"},
	{Not: `touches|(?:a|each|every|such a|first) touch`, But: "fault points"},
	{Not: `old pod specs?`, But: "extended resources"},
	{Not: `forks`, Except: `forks of (?:NVIDIA's |the )?device plugin|device plugin and its forks|device plugin [^.]{0,40}forks of it`, But: "forks of NVIDIA's device plugin"},
	{Not: `mistakes?`, Except: `by mistake`, But: "invalid configuration; admission webhook"},
	{Not: `as it comes|as they come|(?:applied|reloaded|changed) live`, But: "without restart"},
	{Not: `two commands`, But: "quickstart"},
	{Not: `patience|patient|patiently`, But: "retry, retry budget"},
	{Not: `settle[sd]?|settling|strays?|orphan(?:s|ed)?`, Except: `cascade=orphan|orphan process(?:es)?`, But: "recover, leaked effects, garbage collection"},
	{Not: `allotments?`, But: "allocation key"},
	{Not: `keepers?`, But: "reconciler, store"},
	{Not: `untaints?`, But: "taints unsupported"},
	{
		Not:    `who|whom|whoever|nobody|somebody|anybody|everybody|he|him|his`,
		Except: `(?:administrators?|operators?|people|person|readers?|users?) who`,
		But:    "a thing as the subject: the scheduler, the claim, the plugin, a GPU",
	},
	{Not: `is not a field|allowed here`, But: `unknown field "x"; valid fields: …`},
	{Not: `in silence|none the worse|without a word`, But: "silently, not affected"},
	{
		Not: `SharesForgotten|CountersDropped|ConfigUnread|ConfigRefused|LayoutUnread|RecordDamaged|MIGModeWrong|ConfigAccepted|OrphanRemoved|` +
			`ReconcileFailed|NamesOverlap|NameTaken|TooManyProfiles|NamesNotServed|RestartNeeded|IntervalNotSet`,
		But: "the reason that pkg/events has",
	},
	{
		Not: `prism_gpus_changing|prism_gpus_interval_not_set|prism_damaged_records_total|prism_orphans_removed_total|prism_reconcile_errors_total`,
		But: "the metric's name in the code",
	},
}

// Headings are the words that the first row of a table in docs may not contain.
var Headings = []Rule{
	{Not: `seen`, But: "symptom, cause"},
}

// Identifiers are the words that no declared name may contain. Names are split at changes of case: MIGOffer is "mig offer".
var Identifiers = []Rule{
	{Not: `mig slices?|slices? of gpu`, But: "MIG device"},
	{Not: `offers?|offered|offering|offerings`, But: "advertised, layout"},
	{Not: `anew`, But: "again, recreated"},
	{Not: `debts?|debtors?|owe[sd]?|owing|pay|pays|paid`, But: "pending cleanup"},
	{Not: `tells?|told`, But: "report(ed)"},
	{Not: `laws?|touches`, But: "invariants, fault points"},
	{Not: `lives`, But: "scenarios"},
	{Not: `turns`, But: "time-slicing"},
	{Not: `legacy`, But: "extended resources"},
	{Not: `patience|patient|patiently`, But: "retry, retry budget"},
	{Not: `settle[sd]?|settling|strays?|orphan(?:s|ed)?`, But: "recover, leaked effects, garbage collection"},
	{Not: `allotments?`, But: "allocation key"},
	{Not: `author|authors`, But: "spec builder"},
	{Not: `keepers?`, But: "reconciler"},
	{Not: `untaint|untaints|forgets?|forgotten`, But: "taints unsupported, shared counters unsupported"},
	{Not: `who|whom|whoever|nobody|somebody|anybody|everybody`, But: "the name of a thing"},
}

// Files are the names that no Go file may have, without .go and _test.go.
var Files = []Rule{
	{
		Not: `settled?|strays?|orphans?|allotments?|author|order|needs?|meet|keeper|notes|patience|apart|instead|beside|alone|running|untaint|forgets|` +
			`debts?|offers?|anew|turns|legacy|laws|lives`,
		But: "what is in it: capabilities, config status, extra devices, in-flight calls, retries, recovery, garbage collection",
	},
}
