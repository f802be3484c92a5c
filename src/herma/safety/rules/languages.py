"""The commonest attacks in other languages. Folding has removed the accents of Latin letters."""

from __future__ import annotations

from herma.safety.rule import Rule, pattern

_G = r"[^\n]{0,30}?"
_G8 = r"[^\n]{0,8}?"
_G12 = r"[^\n]{0,12}?"
_G20 = r"[^\n]{0,20}?"

LANGUAGES = (
    Rule(
        "ignore_instructions",
        "tells the reader to set earlier instructions aside",
        phrases="""
        (ignoriere|ignoriert|ignorier|ignorieren|vergiss|vergesst|vergessen|missachte|missachten|ubergehe) ..
            (bisherigen|vorherigen|vorigen|fruheren|obigen|vorangegangenen|alle|allen|deine|ursprunglichen|
            vorstehenden) .. (anweisung|anweisungen|instruktionen|regeln|vorgaben|befehle|anleitungen|
            richtlinien|prompts)
        (ignore|ignorez|ignorer|oublie|oubliez|oublier) .. (instruction|instructions|consignes|directives|
            regles|ordres) .. (precedentes|precedents|anterieures|ci-dessus|initiales|donnees|recues)
        (ignorez|ignorer|oublie|oubliez|oublier) .. (precedentes|anterieures|vos|tes|toutes) ..
            (instructions|consignes|directives|regles)
        (ignora|ignore|ignorar|ignoren|olvida|olvide|olvidar|olviden|descarta|desobedece|caso omiso) ..
            (instruccion|instrucciones|reglas|ordenes|indicaciones|directrices) .. (anterior|anteriores|
            previas|previa|dadas|originales|iniciales|recibidas|arriba)
        (ignora|ignore|olvida|olvide|olvidate) .. (anteriores|previas|tus|todas) .. (instrucciones|reglas|
            ordenes|indicaciones)
        (ignore|ignora|ignorar|esqueca|esquece|esquecer|desconsidere|desconsiderar) .. (instrucoes|regras|
            ordens|diretrizes|comandos) .. (anteriores|previas|acima|dadas|originais|iniciais)
        (ignora|ignorare|ignori|ignorate|dimentica|dimenticate|dimenticare) .. (istruzioni|regole|ordini|
            direttive) .. (precedenti|sopra|iniziali|originali|ricevute)
        (ignora|dimentica|ignorate) .. precedenti .. (istruzioni|regole|direttive)
        (negeer|vergeet) .. (vorige|eerdere|voorgaande|bovenstaande|alle) .. (instructies|opdrachten|regels|
            aanwijzingen)
        (zignoruj|zapomnij|ignoruj) .. (poprzednie|wczesniejsze|wszystkie|poprzednich) .. (instrukcje|
            polecenia|zasady|instrukcjach)
        (abaikan|lupakan) .. (instruksi|perintah|aturan) .. (sebelumnya|di atas)
        ignorera .. (tidigare|foregaende) .. (instruktioner|anvisningar)
        """,
        patterns=(
            pattern(
                "игнориру забудь отбрось следуй внимани",
                rf"(?:игнориру|не обращай внимани|забудь|проигнориру|не следуй"
                rf"|отбрось)\w{{0,4}}{_G}(?:предыдущ|прежн|прошл|вышеуказанн"
                rf"|все|эти|свои|ранн)\w{{0,4}}{_G}(?:инструкци|указани|правил|команд|сообщени|директив)",
            ),
            pattern(
                "ігнору забудь",
                rf"(?:ігнору|забудь)\w{{0,4}}{_G}(?:попередн|усі|всі)\w{{0,3}}{_G}(?:інструкц|вказівк"
                rf"|правил)",
            ),
            pattern(
                "忽略 无视 無視 忘记 忘記 忽视 忽視 不要理会 不要遵守 不要遵循",
                rf"(?:忽略|无视|無視|忘记|忘記|忽视|忽視|不要理会|不要遵守|不要遵循){_G12}(?:之前|以前|以上|上面|先前|前面|所有|此前|上述|原有|原来"
                rf"|系统|系統|你的|一切){_G12}(?:指令|指示|提示|规则|規則|命令|说明|說明|要求|约束|限制|设定|設定|内容)",
            ),
            pattern(
                "無視 忘れ 破棄 従わない",
                rf"(?:これまで|以前|前|上記|先ほど|すべて|全て|元|システム){_G12}(?:指示|命令|ルール|プロンプト|指令|制約){_G8}"
                rf"(?:無視|忘れ|破棄|従わない)",
            ),
            pattern(
                "무시 잊 따르지",
                rf"(?:이전|앞선|위의|모든|기존|지금까지){_G12}(?:지시|명령|규칙|지침|프롬프트){_G8}(?:무시|잊|따르지)",
            ),
            pattern("تجاهل انس", rf"(?:تجاهل|انس){_G20}(?:تعليمات|الأوامر|اوامر|القواعد|الاوامر)"),
            pattern(
                "अनदेखा भूल नज़रअंदाज़",
                rf"(?:पिछले|पिछली|पहले|सभी){_G20}(?:निर्देश|आदेश|नियम){_G20}(?:अनदेखा|भूल|नज़रअंदाज़)",
            ),
            pattern("نادیده فراموش", rf"(?:دستورات|دستورالعمل|قوانین){_G20}(?:قبلی|پیشین|بالا){_G20}(?:نادیده|فراموش)"),
            pattern("התעלם שכח", rf"(?:התעלם|שכח){_G20}(?:הוראות|ההוראות|כללים)"),
        ),
    ),
    Rule(
        "hide_from_user",
        "asks the model to hide something from its user",
        phrases="""
        (sag|sage|erzahl|erzahle|verrate|informiere|zeig|zeige|teile) .. (nutzer|benutzer|anwender) ..
            (nichts|nicht|kein wort|niemals)
        ohne (dass)? (es)? (der|dem|den) (nutzer|benutzer|anwender) .. (merkt|weiss|erfahrt|zu informieren|
            davon|bescheid)
        ne (le|en)? (dis|dites|parle|parlez|revele|revelez|mentionne|informe|informez|previens) .. utilisateur
        sans (que|en informer|informer|prevenir|le dire a) (l)? utilisateur
        no (le|se lo|lo)? (digas|informes|cuentes|reveles|menciones|avises) .. (usuario|usuaria)
        sin (que|informar|avisar|decirle) (al|el)? (usuario|usuaria)
        nao (conte|diga|informe|revele|avise|mencione) .. (usuario|usuaria|utilizador)
        non (dirlo|dire|rivelare|informare|menzionare) .. utente
        (vertel|zeg) .. gebruiker .. (niet|niets)
        """,
        patterns=(
            pattern("пользовател", rf"не (?:говори|сообщай|рассказывай|показывай|упоминай|раскрывай){_G}пользовател"),
            pattern(
                "用户 用戶 使用者",
                r"(?:不要|别|別|不得|切勿|禁止)[^\n]{0,6}?(?:告诉|告訴|告知|透露|通知|让|讓|泄露)[^\n]{0,8}?(?:用户|用戶|使用者)",
            ),
            pattern("ユーザ", r"ユーザー?[^\n]{0,12}?(?:言わない|伝えない|知らせない|教えない|知らせず|伝えず|内緒)"),
            pattern("사용자", r"사용자[^\n]{0,6}?(?:에게|한테)[^\n]{0,12}?(?:말하지|알리지|알려주지|숨기)"),
        ),
    ),
    Rule(
        "prompt_extraction",
        "asks the model to give away its instructions",
        phrases="""
        (zeig|zeige|gib|nenne|verrate|drucke|wiederhole) .. (deinen|deine|den|die|das) _? (systemprompt|
            system-prompt|systemanweisung|systemanweisungen|anweisungen)
        (montre|montrez|revele|revelez|affiche|affichez|donne|repete) .. (ton|tes|votre|vos) .. (prompt
            systeme|instructions initiales|instructions secretes|instructions systeme)
        (muestra|muestrame|revela|imprime|dime|repite) .. (tu|tus) .. (prompt|instrucciones) (de|del)?
            (sistema|iniciales|ocultas|secretas)
        (mostre|revele|imprima|repita) .. (seu|suas|teu) .. (prompt|instrucoes) (de|do)? (sistema|iniciais|
            ocultas)
        """,
        patterns=(
            pattern(
                "промпт инструкци подсказк",
                rf"(?:покажи|раскрой|выведи|повтори|скажи|напечатай){_G}(?:системн|свои|твои|твой"
                rf"|свой)\w{{0,4}}{_G}(?:промпт|инструкци|подсказк)",
            ),
            pattern(
                "系统提示 系統提示 提示词 提示詞 系统指令 系統指令 初始指令",
                r"(?:显示|顯示|告诉|告訴|输出|輸出|透露|泄露|重复|重複|打印|公开)[^\n]{0,10}?(?:系统提示|系統提示|提示词|提示詞|系统指令|系統指令|初始指令)",
            ),
            pattern(
                "システム 初期指示",
                r"(?:システムプロンプト|システム指示|初期指示)[^\n]{0,8}?(?:表示|教え|見せ|出力|公開|繰り返)",
            ),
            pattern("시스템", r"시스템 ?프롬프트[^\n]{0,8}?(?:보여|알려|출력|공개)"),
        ),
    ),
)
