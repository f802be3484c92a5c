"""The commonest attacks in other languages. Folding has removed the accents of Latin letters."""

from __future__ import annotations

from herma.safety.rule import Rule, pattern

_G = r"[^\n]{0,30}?"

LANGUAGES = (
    Rule(
        "ignore_instructions",
        "tells the reader to set earlier instructions aside",
        patterns=(
            pattern(
                "ignoriere ignorier ignorieren vergiss vergesst missachte missachten ignorez ignore ignorer oubliez oublie ignora ignorar "
                "ignoren olvida olvidar olvide desobedece esqueca esquece desconsidere desconsiderar ignorare ignori dimentica "
                "negeer vergeet zignoruj zapomnij abaikan lupakan ignorera glom ignorer",
                rf"\b(?:ignorier\w{{0,3}}|vergiss|vergesst|missacht\w{{1,3}})\b{_G}\b(?:bisherig|vorherig|vorig|fruher|obig|vorangegangen|all|deine|ursprunglich)"
                rf"\w{{0,3}}\b{_G}\b(?:anweisung|instruktion|regel|vorgabe|befehl|anleitung|richtlinie|prompt)\w{{0,3}}"
                rf"|\b(?:ignore[rz]?|oublie[rz]?|ne tiens? pas compte)\b{_G}\b(?:instruction|consigne|directive|regle|ordre|commande)s?\b{_G}\b(?:precedent|"
                rf"anterieur|ci-dessus|initial|donne|avant)\w{{0,3}}"
                rf"|\b(?:ignore[rz]?|oublie[rz]?)\b{_G}\b(?:precedent|anterieur|vos|tes|toutes les)\w{{0,3}}\b{_G}\b(?:instruction|consigne|directive|regle)s?"
                rf"|\b(?:ignor[aeo]\w{{0,3}}|olvid[ae]\w{{0,3}}|desobedece|descarta|haz caso omiso de)\b{_G}\b(?:instruccion|regla|orden|indicacion|directriz|directrice)"
                rf"(?:es|s)?\b{_G}\b(?:anterior|previa|de arriba|dada|original|inicial|recibida)\w{{0,3}}"
                rf"|\b(?:ignor[ae]\w{{0,3}}|olvid[ae]\w{{0,3}})\b{_G}\b(?:anteriores|previas|tus|todas las)\b{_G}\b(?:instrucciones|reglas|ordenes)"
                rf"|\b(?:ignor[ae]\w{{0,3}}|esque[cç][ae]\w{{0,3}}|desconsider[ae]\w{{0,2}})\b{_G}\b(?:instruc|regra|orden|diretriz|comando)\w{{1,5}}\b{_G}\b(?:anterior|"
                rf"previa|acima|dada|original|inicia)\w{{0,3}}"
                rf"|\b(?:ignor[ai]\w{{0,3}}|dimentica\w{{0,3}})\b{_G}\b(?:istruzion|regol|ordin|direttiv)\w{{1,2}}\b{_G}\b(?:precedent|sopra|date|inizial|original)\w{{0,2}}"
                rf"|\b(?:ignor[ai]\w{{0,3}}|dimentica\w{{0,3}})\b{_G}\bprecedenti\b{_G}\b(?:istruzioni|regole)"
                rf"|\b(?:negeer|vergeet)\b{_G}\b(?:vorige|eerdere|voorgaande|bovenstaande|alle)\b{_G}\b(?:instructies|opdrachten|regels|aanwijzingen)"
                rf"|\b(?:zignoruj|zapomnij)\b{_G}\b(?:poprzedni|wczesniejsz|wszystki)\w{{0,3}}\b{_G}\b(?:instrukcj|polecen|zasad)\w{{0,3}}"
                rf"|\b(?:abaikan|lupakan)\b{_G}\b(?:instruksi|perintah|aturan)\b{_G}\b(?:sebelumnya|di atas)"
                rf"|\bignorera\b{_G}\b(?:tidigare|foregaende)\b{_G}\binstruktioner",
            ),
        ),
    ),
    Rule(
        "ignore_instructions",
        "tells the reader to set earlier instructions aside",
        patterns=(
            pattern(
                "игнорируй игнорировать забудь ігноруй 忽略 無視 无视 忘记 忘記 忽视 忽視 무시 تجاهل अनदेखा نادیده bỏ yoksay unut שכח התעלם",
                rf"(?:игнориру|не обращай внимани|забудь|проигнориру|не следуй|отбрось)\w{{0,4}}{_G}(?:предыдущ|прежн|прошл|вышеуказанн|все|эти|свои|ранн)\w{{0,4}}{_G}"
                rf"(?:инструкци|указани|правил|команд|сообщени|директив)"
                rf"|(?:ігнору|забудь)\w{{0,4}}{_G}(?:попередн|усі|всі)\w{{0,3}}{_G}(?:інструкц|вказівк|правил)"
                rf"|(?:忽略|无视|無視|忘记|忘記|忽视|忽視|不要理会|不要遵守|不要遵循)[^\n]{{0,12}}?(?:之前|以前|以上|上面|先前|前面|所有|此前|上述|原有|原来|系统|系統|你的|一切)[^\n]{{0,12}}?"
                rf"(?:指令|指示|提示|规则|規則|命令|说明|說明|要求|约束|限制|设定|設定|内容)"
                rf"|(?:これまで|以前|前|上記|先ほど|すべて|全て|元|システム)[^\n]{{0,10}}?(?:指示|命令|ルール|プロンプト|指令|制約)[^\n]{{0,8}}?(?:無視|忘れ|破棄)"
                rf"|(?:이전|앞선|위의|모든|기존|지금까지)[^\n]{{0,12}}?(?:지시|명령|규칙|지침|프롬프트)[^\n]{{0,8}}?(?:무시|잊|따르지)"
                rf"|(?:تجاهل|انس|تجاهلي)[^\n]{{0,20}}?(?:تعليمات|التعليمات|الأوامر|اوامر|القواعد|الاوامر)"
                rf"|(?:पिछले|पिछली|पहले|सभी)[^\n]{{0,20}}?(?:निर्देश|आदेश|नियम)[^\n]{{0,20}}?(?:अनदेखा|भूल|नज़रअंदाज़)"
                rf"|(?:دستورات|دستورالعمل|قوانین)[^\n]{{0,20}}?(?:قبلی|پیشین|بالا)[^\n]{{0,20}}?(?:نادیده|فراموش)"
                rf"|(?:התעלם|שכח)[^\n]{{0,20}}?(?:הוראות|ההוראות|כללים)",
            ),
        ),
    ),
    Rule(
        "hide_from_user",
        "asks the model to hide something from its user",
        patterns=(
            pattern(
                "nutzer benutzer anwender utilisateur usuario utente gebruiker utilizador usuaria пользователю пользователь 用户 用戶 使用者 "
                "ユーザー 사용자",
                rf"\b(?:sag|sage|erzahl|erzahle|verrate|informiere|zeige?|teile?)\b{_G}\b(?:dem|den|der)? ?(?:be)?nutzer\w{{0,2}}\b{_G}\b(?:nichts|nicht|kein wort|niemals)\b"
                rf"|\bohne (?:dass )?(?:es )?(?:der|dem|den) (?:be)?nutzer\w{{0,2}}\b{_G}\b(?:merkt|weiss|erfahrt|wei\w{{1,2}}|zu informieren|bescheid|davon)"
                rf"|\bne (?:le )?(?:dis|dites|parle|parlez|revele|revelez|mentionne|informe|informez)\b{_G}\b(?:a l'|l')?utilisateur"
                rf"|\bsans (?:que )?(?:en )?(?:l'|informer l'|prevenir l'|le dire a l')utilisateur"
                rf"|\bno (?:le |se lo )?(?:digas|informes|cuentes|reveles|menciones|avises)\b{_G}\busuari[oa]|\bsin (?:que )?(?:el |informar al |avisar al )usuari[oa]\b"
                rf"|\bnao (?:conte|diga|informe|revele|avise)\b{_G}\b(?:usuari[oa]|utilizador)|\bnon (?:dirlo|dire|rivelare|informare)\b{_G}\butente"
                rf"|\b(?:vertel|zeg)\b{_G}\bgebruiker\b{_G}\b(?:niet|niets)\b"
                rf"|не (?:говори|сообщай|рассказывай|показывай|упоминай|раскрывай){_G}пользовател"
                rf"|(?:不要|别|別|不得|切勿|禁止)[^\n]{{0,6}}?(?:告诉|告訴|告知|透露|通知|让|讓|泄露)[^\n]{{0,8}}?(?:用户|用戶|使用者)"
                rf"|ユーザー?[^\n]{{0,6}}?(?:には|に)?[^\n]{{0,6}}?(?:言わない|伝えない|知らせない|教えない|知らせず|伝えず|内緒)"
                rf"|사용자[^\n]{{0,6}}?(?:에게|한테)[^\n]{{0,12}}?(?:말하지|알리지|알려주지|숨기)",
            ),
        ),
    ),
    Rule(
        "prompt_extraction",
        "asks the model to give away its instructions",
        patterns=(
            pattern(
                "systemprompt prompt systeme sistema systemanweisungen anweisungen instructions instrucciones промпт инструкции 系统提示 系統提示 "
                "提示词 提示詞 システムプロンプト 시스템",
                rf"\b(?:zeig|zeige|gib|nenne|verrate|drucke|wiederhole)\b{_G}\b(?:deine?n?|den|die|das) (?:\w{{1,14}} )?(?:system-?prompt|systemanweisung\w{{0,3}}|system-anweisung"
                rf"\w{{0,3}}|anweisungen)\b"
                rf"|\b(?:montre|revele|affiche|donne|repete)\w{{0,2}}\b{_G}\b(?:ton|tes|votre|vos)\b{_G}\b(?:prompt|instructions) ?(?:systeme|initiales|secretes|caches)"
                rf"|\b(?:muestra|revela|imprime|dime|repite|muestrame)\b{_G}\b(?:tu|tus)\b{_G}\b(?:prompt|instrucciones)(?: de| del)? ?(?:sistema|iniciales|ocultas|secretas)?"
                rf"|(?:покажи|раскрой|выведи|повтори|скажи|напечатай){_G}(?:системн|свои|твои|твой|свой)\w{{0,4}}{_G}(?:промпт|инструкци|подсказк)"
                rf"|(?:显示|顯示|告诉|告訴|输出|輸出|透露|泄露|重复|重複|打印|公开)[^\n]{{0,10}}?(?:系统提示|系統提示|提示词|提示詞|系统指令|系統指令|初始指令)"
                rf"|(?:システムプロンプト|システム指示|初期指示)[^\n]{{0,8}}?(?:表示|教え|見せ|出力|公開|繰り返)"
                rf"|시스템 ?프롬프트[^\n]{{0,8}}?(?:보여|알려|출력|공개)",
            ),
        ),
    ),
)
